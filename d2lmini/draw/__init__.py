"""Drawing of graphs and timelines, independent of their content.

layers     positions of the boxes of a graph
svg        boxes and arrows as SVG
png        the same SVG as PNG, for a notebook that is not trusted yet
timeline   activities over time, in d2l's colours, by matplotlib
picture    pictures that a notebook shows: `Picture`, `Drawing`
"""
