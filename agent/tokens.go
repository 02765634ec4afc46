package agent

import "k8s.io/apimachinery/pkg/types"

// sweepTokens has the tokens dropped of pods that nothing knows, as of those that
// went while there was no agent. Config.Tokens may keep them over a restart.
func (a *Agent) sweepTokens(known map[types.UID]bool) {
	if t, ok := a.cfg.Tokens.(interface{ Retain(func(types.UID) bool) }); ok {
		t.Retain(func(uid types.UID) bool { return known[uid] || a.wanted(uid) })
	}
}
