"""Read records whose keys only the program can name, in batches.

Written plainly, a program that follows references (an order names a customer, who names an address)
waits for one request per record. In a region of :func:`spliter.ahead`, calls that wait for records
leave the thread to calls that do not depend on them, and the keys of all go in batches::

    call 0    read a |                        | read d |              | end
    call 1           | read b |               |        | read e |     | end
    call 2                    | read c |      |                 | end
    requests                           [a b c]                  [d e]

The modules, from the first that a program meets::

    _region     the region, its reads and its report
    _trials     runs of a function that only find out which keys it reads
    _calls      calls that wait in turns: greenlets, in program order
    _requests   which keys are sent, and in which batches
    _records    absent, requested and present records of a region

The idea is that of "Sprint: Speculative Prefetching of Remote Data" (OOPSLA 2011).
"""

from __future__ import annotations

from spliter.ahead._region import Region, Report, ahead

__all__ = ["Region", "Report", "ahead"]
