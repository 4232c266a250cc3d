"""Streams of packets between the workers of one topology. Pure: time is passed in, rows are handed out.

A *topology* is a graph of steps. A step publishes *messages*; a message on its way to one step is a *packet*. The *hub*
routes packets along the graph and keeps, for every step, an *inlet*: what waits for it, and what it has not
acknowledged. No module here knows a workflow language, a store, a network or a clock.
"""
