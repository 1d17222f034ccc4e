"""Sessions: the durable record of every run.

store                                 the protocols of a session store, and its values
memory, jsonl                         the stores in memory and in files
paths, lease                          of the files: paths and unique ids, one writer at a time
segments, writer, flusher             lines and their files, appended, made durable in groups
reader, summary, index                events in order, the summary of a session, lists without reading records again
recovery, retention                   sessions opened for writing, runs ended after a crash; pruning
conversation_log                      the log of each root conversation
storage_errors                        failures of the disk, for users
messages                              events as the messages of a conversation
"""
