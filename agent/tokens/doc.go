// Package tokens drops the service account tokens of pods that are gone.
//
// A token source that keeps tokens over a restart of the agent, in memory that
// outlives it or on disk, would keep those of pods that went while there was no
// agent. [Part] hands each sweep of the agent on to it.
//
//	tokens.New(tokens.Config{Tokens: source})
//
// # Hooks
//
// [Part] is a part.Sweeper and nothing else. It has no goroutine and no state.
//
// # Faults
//
// Sweeps are made off the agent's loop and never overlap; a source that hangs
// holds up the sweeps of other parts and no pod.
//
// Tier: beta.
package tokens
