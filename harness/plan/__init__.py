"""Requests -> trials with budgets; pure."""
