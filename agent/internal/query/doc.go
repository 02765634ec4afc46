// Package query answers requests about the pods of an agent: their statuses, why they wait, and
// where their logs are. People and the node's HTTP API use it; package agent embeds it.
package query
