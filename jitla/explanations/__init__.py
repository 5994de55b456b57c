"""What became of calls, shown: records, texts, graphs, pages and advice."""
