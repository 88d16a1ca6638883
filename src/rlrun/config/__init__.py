"""From words on the command line to typed values: composing, checking, and the messages for what is wrong."""
