"""What torch has for each kind of accelerator, under the names of `torch.cuda`: a file a kind."""
