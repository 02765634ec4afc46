// Package portforward connects a stream with a TCP port of localhost in a network
// namespace.
package portforward
