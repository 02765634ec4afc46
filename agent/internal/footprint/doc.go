// Package footprint is what keeps the process of an agent small: see agent.Process.
package footprint
