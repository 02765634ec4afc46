// Package hooks finds the hooks of an agent's parts and calls them. A panic in a hook becomes the
// error of the call.
package hooks

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/part"
)

// Of is a hook with the name of its part.
type Of[T any] struct {
	Name string
	Hook T
}

// Hooks has the parts by hook, each list in the order of Config.Parts.
type Hooks struct {
	Names []string            // names of the parts
	Kinds map[string][]string // names of hooks by part

	Runners     []Of[part.Runner]
	Restorers   []Of[part.Restorer]
	Keepers     []Of[part.Housekeeper]
	Sweepers    []Of[part.Sweeper]
	Explainers  []Of[part.Explainer]
	NodeWhys    []Of[part.NodeExplainer]
	Watchers    []Of[part.RuntimeWatcher]
	Starters    []Of[part.Starter]
	Preparers   []Of[part.Preparer]
	Claimers    []Of[part.Claimer]
	Stoppers    []Of[part.Stopper]
	Finishers   []Of[part.Finisher]
	Admitters   []Of[part.Admitter]
	Reservers   []Of[part.Reserver]
	Forecasters []Of[part.Forecaster]
	Revivers    []Of[part.Reviver]
	Preempters  []Of[part.Preempter]
	Compilers   []Of[part.Compiler]
	Creators    []Of[part.Creator]
	Containers  []Of[part.ContainerWatcher]
	Pulls       []Of[part.PullWatcher]
	Reporters   []Of[part.Reporter]
	Holders     []Of[part.Holder]
	Providers   []Of[part.Provider]
	Allocators  []Of[part.Allocator]
	Syncs       []Of[part.SyncWatcher]
	Resizes     []Of[part.ResizeChecker]
	Publishers  []Of[part.Publisher]
	Mirrors     []Of[part.MirrorWatcher]
	Recorders   []Of[part.Recorder]
}

// Find determines the hooks of each part. It returns the errors of all parts, such as
// duplicate names.
func Find(parts []part.Part) (*Hooks, error) {
	h := &Hooks{Kinds: map[string][]string{}}
	var errs []error
	bad := func(field, want string) { errs = append(errs, errors.New(field+" "+want)) }
	for i, p := range parts {
		if p == nil {
			bad(fmt.Sprintf("Parts[%d]", i), "is nil; a part is required")
			continue
		}
		name := p.Name()
		if _, twice := h.Kinds[name]; twice || name == "" {
			bad(fmt.Sprintf("Parts[%d]", i), fmt.Sprintf("is named %q; a name of its own is required", name))
			continue
		}
		h.Names, h.Kinds[name] = append(h.Names, name), []string{}
		h.add(p)
	}
	for what, n := range map[string]int{"part.Allocator": len(h.Allocators), "part.Publisher": len(h.Publishers)} {
		if n > 1 {
			bad("Parts", fmt.Sprintf("has %d of %s; one at most is allowed", n, what))
		}
	}
	return h, errors.Join(errs...)
}

func (h *Hooks) add(p part.Part) {
	find(h, p, "Runner", &h.Runners)
	find(h, p, "Restorer", &h.Restorers)
	find(h, p, "Housekeeper", &h.Keepers)
	find(h, p, "Sweeper", &h.Sweepers)
	find(h, p, "Explainer", &h.Explainers)
	find(h, p, "NodeExplainer", &h.NodeWhys)
	find(h, p, "RuntimeWatcher", &h.Watchers)
	find(h, p, "Starter", &h.Starters)
	find(h, p, "Preparer", &h.Preparers)
	find(h, p, "Claimer", &h.Claimers)
	find(h, p, "Stopper", &h.Stoppers)
	find(h, p, "Finisher", &h.Finishers)
	find(h, p, "Admitter", &h.Admitters)
	find(h, p, "Reserver", &h.Reservers)
	find(h, p, "Forecaster", &h.Forecasters)
	find(h, p, "Reviver", &h.Revivers)
	find(h, p, "Preempter", &h.Preempters)
	find(h, p, "Compiler", &h.Compilers)
	find(h, p, "Creator", &h.Creators)
	find(h, p, "ContainerWatcher", &h.Containers)
	find(h, p, "PullWatcher", &h.Pulls)
	find(h, p, "Reporter", &h.Reporters)
	find(h, p, "Holder", &h.Holders)
	find(h, p, "Provider", &h.Providers)
	find(h, p, "Allocator", &h.Allocators)
	find(h, p, "SyncWatcher", &h.Syncs)
	find(h, p, "ResizeChecker", &h.Resizes)
	find(h, p, "Publisher", &h.Publishers)
	find(h, p, "MirrorWatcher", &h.Mirrors)
	find(h, p, "Recorder", &h.Recorders)
}

func find[T any](h *Hooks, p part.Part, kind string, list *[]Of[T]) {
	if hook, ok := p.(T); ok {
		*list = append(*list, Of[T]{p.Name(), hook})
		h.Kinds[p.Name()] = append(h.Kinds[p.Name()], kind)
	}
}

// Log logs the parts with their hooks.
func (h *Hooks) Log(log *zap.Logger) {
	for _, name := range h.Names {
		log.Debug("registered part", zap.String("name", name), zap.Strings("hooks", h.Kinds[name]))
	}
}
