"""Graphs as pictures and as text: SVG with a layout of our own, Mermaid, DOT, and an outline for the terminal."""
