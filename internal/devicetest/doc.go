// Package devicetest has a device plugin and a DRA driver in memory, for tests of agents.
package devicetest
