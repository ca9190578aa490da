"""Drawing of pictures; the callers of this folder decide what a picture shows.

layers     layout of a graph's boxes
svg        boxes and arrows as SVG
png        such an SVG as PNG, for a notebook that is not trusted yet
timeline   which lane was busy when, in d2l's colours, by matplotlib
picture    a picture that a notebook shows, and that can be saved: `Picture`, `Drawing`
"""
