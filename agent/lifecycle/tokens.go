package lifecycle

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodewright/nodewright/agent/part"
)

// TokenRetainer has the method of a token source that Tokens calls.
type TokenRetainer interface {
	// Retain deletes the tokens of pods for which known returns false.
	Retain(known func(types.UID) bool)
}

// TokensConfig configures [Tokens].
type TokensConfig struct {
	// Tokens is the store of tokens. Required.
	Tokens TokenRetainer
}

// Tokens is the part that deletes the service account tokens of pods that are gone.
//
// A token source that stores tokens over a restart of the agent would otherwise keep
// the tokens of pods that were removed while no agent ran. [Tokens] calls the source at
// each sweep of the agent.
//
//	lifecycle.NewTokens(lifecycle.TokensConfig{Tokens: source})
//
// # Hooks
//
// The only hook is part.Sweeper. The part has no goroutine and no state.
//
// # Faults
//
// Sweeps run off the agent's loop and never overlap. A source that hangs delays the
// sweeps of other parts, but no pod.
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
