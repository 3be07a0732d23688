"""viewbox: environments in which a vision-language model reads an image with a viewer's tools."""
