"""Consultations: question a patient and order examinations before the diagnosis."""

from viewbox.envs.consultation.env import Consultation

__all__ = ["Consultation"]
