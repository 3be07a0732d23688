"""Consultations: question a patient and order examinations before the diagnosis."""

from .env import Consultation

__all__ = ["Consultation"]
