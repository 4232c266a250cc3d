"""Speed, measured beside the peers in one run: `python -m bench run`. See docs/performance.md.

Every measured thing runs in a process of its own. What such a process imports from here (`sizes`, `scene`, `marks`,
`processes`) is standard library only: the peers live in environments without Perdure.
"""
