"""How pictures are drawn. What a picture shows is the business of those who call this folder.

layers     where the boxes of a graph stand
svg        boxes and arrows as SVG
png        such an SVG as PNG, for a notebook that is not trusted yet
timeline   who was busy when, in d2l's colours, by matplotlib
picture    a picture that a notebook shows, and that can be saved: `Picture`, `Drawing`
"""
