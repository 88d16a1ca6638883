"""Reports: runs are read, compared, drawn, and put on one page. Nothing here trains or needs torch.

runs        whole runs are read, all else is named
statistics  interquartile means, bootstrap intervals, profiles, probabilities of improvement
compare     methods against environments: which runs count, and what they scored
figures     what the pictures show, as marks in data units
svg, png    these marks as SVG for the page, and as PNG files
tables      the numbers behind the pictures
names       text from untrusted files, made fit to be shown
page        the HTML around them, with page.css and page.js
"""
