"""Runs on disk turned into evidence: read, compared, drawn, and put on one page. Nothing here trains or needs torch.

runs             what is whole is read, what is not is named
statistics       interquartile means, bootstrap intervals, profiles, probabilities of improvement
compare          methods against environments: which runs count, and what they scored
figures, tables  pictures and figures of that
page             the HTML around them
"""
