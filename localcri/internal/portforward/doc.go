// Package portforward connects a stream to a TCP port of localhost in a network namespace.
package portforward
