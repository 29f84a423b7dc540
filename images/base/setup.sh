# python and pip by their short names.
ln -s python3 /usr/bin/python
