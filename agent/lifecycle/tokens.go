package lifecycle

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
)

// TokenRetainer is the used part of a token source.
type TokenRetainer interface {
	// Retain deletes the tokens of pods for which known returns false.
	Retain(known func(types.UID) bool)
}

// TokensConfig configures [Tokens].
type TokensConfig struct {
	// Tokens is the store of tokens. Required.
	Tokens TokenRetainer
}

// Tokens drops the service account tokens of pods that are gone.
//
// A token source that keeps tokens over a restart of the agent, in memory that
// outlives it or on disk, would keep those of pods that went while there was no
// agent. [Tokens] hands each sweep of the agent on to it.
//
//	lifecycle.NewTokens(lifecycle.TokensConfig{Tokens: source})
//
// # Hooks
//
// [Tokens] is a part.Sweeper and nothing else. It has no goroutine and no state.
//
// # Faults
//
// Sweeps are made off the agent's loop and never overlap; a source that hangs
// holds up the sweeps of other parts and no pod.
type Tokens struct{ tokens TokenRetainer }

var _ part.Sweeper = (*Tokens)(nil)

// NewTokens checks cfg and returns a part.
func NewTokens(cfg TokensConfig) (*Tokens, error) {
	if cfg.Tokens == nil {
		return nil, errors.New("tokens: TokensConfig.Tokens is required")
	}
	return &Tokens{tokens: cfg.Tokens}, nil
}

// Name implements part.Part.
func (*Tokens) Name() string { return "tokens" }

// Sweep implements part.Sweeper. It returns when Retain does, and ignores ctx.
func (p *Tokens) Sweep(_ context.Context, known func(types.UID) bool) error {
	p.tokens.Retain(known)
	return nil
}
