// Package jupyter talks to Jupyter kernels: it finds what kernels an image
// brings (kernelspecs), writes the connection file that a kernel is started
// with, and runs code over the messaging protocol 5.3
// (https://jupyter-client.readthedocs.io/en/stable/messaging.html) on ZeroMQ.
//
// It starts no process: that is the caller's. The peer is code of the guest,
// so everything that it sends is bounded and may be nonsense: messages that do
// not parse or are not signed are dropped, larger ones end the connection.
package jupyter
