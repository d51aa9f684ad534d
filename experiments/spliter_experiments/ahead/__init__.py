"""``spliter compare ahead``: programs that follow references to records on a server.

`programs` has the records and the program of each way, `servers` the real servers and their
clients, `proxy` the latency between them, `workload` the command.
"""
