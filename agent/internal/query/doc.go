// Package query answers questions about the pods of an agent: what they are, why
// they wait, where their logs are. It is how people, and the node's HTTP API, see
// an agent; package agent embeds it.
package query
