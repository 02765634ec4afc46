package rank

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/quantity"
)

// Text has the thresholds as in the kubelet's configuration file. Keys are signals.
type Text struct {
	// Hard has quantities ("100Mi") or percentages ("10%"). If Hard is nil, it is Defaults(); if
	// it is an empty map, there are no hard thresholds.
	Hard map[string]string
	Soft map[string]string
	// SoftGrace has a duration ("1m30s") for each key of Soft.
	SoftGrace map[string]string
	// MinReclaim has quantities or percentages, for hard and soft thresholds.
	MinReclaim map[string]string
	// MergeDefaults adds the thresholds of Defaults() for signals that Hard does not have.
	MergeDefaults bool
	// Allocatable applies the hard threshold of the node's memory to the memory of all pods too,
	// for nodes with a limit for all pods.
	Allocatable bool
}

// Defaults returns the kubelet's hard thresholds on Linux and, in addition, one of process IDs.
// Without it no pod would be evicted when pods use all process IDs that they may have.
func Defaults() map[string]string {
	return map[string]string{
		string(SignalMemory): "100Mi",
		string(SignalNodeFs): "10%", string(SignalNodeFsInodes): "5%",
		string(SignalImageFs): "15%", string(SignalImageFsInodes): "5%",
		string(SignalPIDs): "10%",
	}
}

// Parse parses thresholds. The result has the hard ones, the soft ones, then those of
// allocatable memory, each in the order of signals. The error names every mistake.
func Parse(t Text) ([]Threshold, error) {
	hard := t.Hard
	if hard == nil {
		hard = Defaults()
	} else if t.MergeDefaults {
		hard = Defaults()
		maps.Copy(hard, t.Hard)
	}
	var errs []error
	grace := parseMap("soft grace period", t.SoftGrace, parseGrace, &errs)
	reclaim := parseMap("minimum reclaim", t.MinReclaim, parseReclaim, &errs)

	list := parseMap("hard threshold", hard, parseValue, &errs).thresholds()
	soft := parseMap("soft threshold", t.Soft, parseValue, &errs).thresholds()
	for i := range soft {
		s := soft[i].Signal
		if _, ok := t.SoftGrace[string(s)]; !ok {
			errs = append(errs, fmt.Errorf("soft threshold of %s has no soft grace period; want a duration", s))
		}
		soft[i].Grace = grace[s]
	}
	list = append(list, soft...)
	for i := range list {
		list[i].MinReclaim = reclaim[list[i].Signal]
	}
	if t.Allocatable {
		for _, th := range list {
			if th.Signal == SignalMemory && th.Hard() {
				th.Signal = SignalAllocatableMemory
				list = append(list, th)
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list, nil
}

// parsed is a parsed map, without entries that are switched off.
type parsed[T any] map[Signal]T

func parseMap[T any](what string, texts map[string]string, parse func(string) (T, bool, error), errs *[]error) parsed[T] {
	out := parsed[T]{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		s := Signal(name)
		if !s.Known() {
			*errs = append(*errs, fmt.Errorf("%s: unknown signal %q; want one of %s", what, name, names()))
			continue
		}
		v, on, err := parse(texts[name])
		if err != nil {
			*errs = append(*errs, fmt.Errorf("%s of %s is %q; %w", what, s, texts[name], err))
			continue
		}
		if on {
			out[s] = v
		}
	}
	return out
}

func names() string {
	var out []string
	for _, f := range facts() {
		out = append(out, string(f.signal))
	}
	return strings.Join(out, ", ")
}

func (p parsed[T]) thresholds() []Threshold {
	var out []Threshold
	for _, s := range slices.SortedFunc(maps.Keys(p), CompareSignals) {
		if v, ok := any(p[s]).(Amount); ok {
			out = append(out, Threshold{Signal: s, Value: v})
		}
	}
	return out
}

// parseValue parses the value of a threshold. 0% and 100% mean no threshold, as in the kubelet.
func parseValue(text string) (Amount, bool, error) {
	if text == "0%" || text == "100%" {
		return Amount{}, false, nil
	}
	a, err := parseAmount(text)
	if err == nil && !strings.HasSuffix(text, "%") && a.Value <= 0 {
		err = errors.New("want more than 0")
	}
	return a, true, err
}

func parseReclaim(text string) (Amount, bool, error) {
	a, err := parseAmount(text)
	if err != nil {
		return a, true, err
	}
	if strings.HasSuffix(text, "%") && a.Fraction == 0 {
		err = errors.New("want more than 0%")
	} else if a.Value < 0 {
		err = errors.New("want 0 or more")
	}
	return a, true, err
}

func parseAmount(text string) (Amount, error) {
	if number, ok := strings.CutSuffix(text, "%"); ok {
		f, err := strconv.ParseFloat(strings.TrimRight(number, "%"), 64)
		if err != nil || math.IsNaN(f) || f < 0 || f > 100 {
			return Amount{}, errors.New("want a percentage from 0% to 100%")
		}
		return Amount{Fraction: f / 100}, nil
	}
	q, err := quantity.Parse(text)
	if err != nil {
		return Amount{}, fmt.Errorf("want a quantity such as 100Mi or a percentage such as 10%%: %w", err)
	}
	return Amount{Value: q.Value(), Format: q.Format}, nil
}

func parseGrace(text string) (time.Duration, bool, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, true, errors.New("want a duration such as 1m30s")
	}
	if d < 0 {
		return 0, true, errors.New("want 0 or more")
	}
	return d, true, nil
}
