"""Words that do not say what a task is about."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


STOP_WORDS = _words("""
    a about above after all also am an and any are as at be because been before being below between both but by
    can could did do does doing down during each either else ever every few for from further get gets had has
    have having he her here hers him his how i if in into is it its itself just let like may me might more most
    much must my need needs no nor not now of off on once one only onto or other our ours out over own please
    same she should since so some such than that the their them then there these they this those through to too
    under until up upon us very was we were well what when where whether which while who whom whose why will with
    within without would yes yet you your codebase project repo repository
""")
"""Never searched for."""

COMMAND_WORDS = _words("""
    add analyse analysis analyze answer behave behavior behaviour bug bugs call called change check class
    classes code contain contains cover coverage covered create current define defined definition describe
    design doc docs document documentation documents evidence exact exist existing exists explain explore
    feature file files find fix folder function functions give handle handled handles handling happen happens
    implement implementation implemented implements improve inspect issue issues keep know known line lines list
    locate located look main make mention method methods module modules name names new official path paths plan
    problem problems propose quality related report research review risk risks say see show step steps strategy
    suggest summarise summarize summary support task tell test tested testing tests thing think trace understand
    use used uses using want way weak work works write
""")
"""They say what to do with the subject, and are searched for only where there is no other word."""
