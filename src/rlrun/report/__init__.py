"""Compares runs and writes a report as an HTML page with pictures and tables. Does not import torch.

runs        reads runs, and lists folders and files that cannot be read
statistics  computes interquartile means, bootstrap intervals, profiles and probabilities of improvement
compare     decides which runs count for each method and environment, and computes their scores
figures     describes the pictures as marks in data units
svg, png    draw these marks as SVG for the page, and as PNG files
tables      builds the tables of the page and of the CSV files
names       makes text from untrusted files safe to show
frame       renders any page of rlrun: frame.html with macros.html, page.css and page.js
page        writes the HTML page of a report, page.html
"""
