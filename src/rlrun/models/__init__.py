"""Models: networks with a loss, which agents and add-ons hold and train, and searches in them."""
