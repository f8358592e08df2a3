"""What training runs reach: score files, tables and figures made of them."""
