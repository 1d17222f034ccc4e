"""What is remembered: the record of every session, who may write it now, and what is made of it.

store                   what every store promises
memory                  the store that forgets
jsonl                   the store in files, which is made of:
  paths claims lease    where things are, whose an id is, who may write
  opening record        a run begins; its record while it goes on
  writer flusher        lines on the disk, made durable in groups
  framing parts         what a line means; files that follow each other
  reading summary       events in order; what a list shows
  index                 a list without reading what has not changed
  recover retention     after a crash; what is forgotten, and when
  rotating              the log of each root conversation
  faults                what to say when the disk will not have it
client                  one client's sessions of that store
transcript              events told as a conversation
"""
