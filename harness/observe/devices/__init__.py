"""What a trial's GPUs and communicators do: plug-ins that say why they could not be used."""
