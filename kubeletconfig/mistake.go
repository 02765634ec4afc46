package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/internal/callerror"
)

// A Mistake is one invalid value of a configuration. The errors of [Load], [Validate] and
// [Flags.Apply] wrap a Mistake for each invalid value; errors.As finds the first.
type Mistake struct {
	Field string // path of the field in the file, such as evictionHard.memory.available
	Value any    // the invalid value, as decoded from JSON or as text
	Want  string // the allowed values, in words
}

func (m Mistake) Error() string {
	return oneLine(m.Field) + ": " + show(m.Value) + ": want " + oneLine(m.Want)
}

// top returns the top-level field of KubeletConfiguration with the mistake.
func (m Mistake) top() string {
	if i := strings.IndexAny(m.Field, ".["); i >= 0 {
		return m.Field[:i]
	}
	return m.Field
}

// maxMistakes is the maximum number of mistakes in an error.
const maxMistakes = 100

// joined returns one error with all mistakes, each preceded by the result of prefix. It lists at
// most maxMistakes, and the number of the others.
func joined(mistakes []Mistake, prefix func(Mistake) string) error {
	var errs []error
	for i, m := range mistakes {
		if i == maxMistakes {
			errs = append(errs, fmt.Errorf("%sand %d more mistakes", prefix(m), len(mistakes)-i))
			break
		}
		errs = append(errs, fmt.Errorf("%s%w", prefix(m), m))
	}
	return errors.Join(errs...)
}

// reporter records a mistake.
type reporter func(field string, value any, want string)

// show formats a value as JSON, cut to 100 bytes. It returns (none) for nil.
func show(v any) string {
	if v == nil {
		return "(none)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return callerror.Cut(string(b), 100)
}

// wrongFields returns an error for each value of doc that cannot be decoded. It decodes each value
// separately, since the decoder reports only the first one, without its field.
func wrongFields(doc map[string]any) (errs []error) {
	var walk func(path string, v any, within func(any) any) (wrong bool)
	walk = func(path string, v any, within func(any) any) bool {
		if len(errs) >= maxMistakes {
			return true
		}
		accepts := func(v any) bool {
			_, err := decode(within(v), new(v1beta1.KubeletConfiguration))
			return err == nil
		}
		if accepts(v) {
			return false
		}
		inner := false
		switch v := v.(type) {
		case map[string]any:
			if !accepts(map[string]any{}) {
				break
			}
			for _, key := range slices.Sorted(maps.Keys(v)) {
				p := strings.TrimPrefix(path+"."+oneLine(key), ".")
				if walk(p, v[key], func(x any) any { return within(map[string]any{key: x}) }) {
					inner = true
				}
			}
		case []any:
			if !accepts([]any{}) {
				break
			}
			for i := range v {
				if walk(fmt.Sprintf("%s[%d]", path, i), v[i], func(x any) any { return within([]any{x}) }) {
					inner = true
				}
			}
		}
		if !inner {
			errs = append(errs, Mistake{path, v, allowed(accepts)})
		}
		return true
	}
	walk("", doc, func(v any) any { return v })
	return errs
}

// allowed describes the values that a field accepts. It finds them by trying samples.
func allowed(accepts func(any) bool) string {
	for _, t := range []struct {
		sample any
		want   string
	}{
		{"any text", "a string"},
		{"1s", "a duration such as 30s, 5m or 1h30m"},
		{true, "true or false"},
		{0.5, "a number"},
		{-1 << 40, "a whole number"},
		{-1, "a whole number of 32 bits"},
		{1, "a whole number of 0 or more"},
		{[]any{}, "a list"},
		{map[string]any{}, "a map of fields"},
	} {
		if accepts(t.sample) {
			return t.want
		}
	}
	return "another value"
}
