def table(r): return ""
