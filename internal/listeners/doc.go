// Package listeners finds the process that listens at a port of the machine.
package listeners
