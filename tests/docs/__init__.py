"""The documentation: every block of code in it runs, and the site builds."""
