package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
)

const (
	// MaxOperations is how many operations a JSON patch may have, as with
	// Kubernetes' API server.
	MaxOperations = 10_000
	// MaxCopied is what all operations of a JSON patch may copy, in bytes of JSON:
	// a patch of some lines could double an object with each.
	MaxCopied = 3 << 20
)

// Errors of patches that cannot be applied. They come wrapped, with the operation.
var (
	// ErrMalformed is a patch that is none.
	ErrMalformed = errors.New("malformed patch")
	// ErrDoesNotApply is one that is not for this object: a path that is not there, or
	// a test that fails.
	ErrDoesNotApply = errors.New("the patch does not apply")
	// ErrTooLarge is one that would cost too much.
	ErrTooLarge = errors.New("the patch is too large")
)

// operation is one of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  *string         `json:"path"`
	From  *string         `json:"from"`
	Value json.RawMessage `json:"value"`
}

// JSON applies a JSON patch.
func JSON(object map[string]any, patch []byte) (map[string]any, error) {
	var ops []operation
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &ops); err != nil {
		return nil, fmt.Errorf("%w: want a list of operations: %w", ErrMalformed, err)
	}
	if len(ops) > MaxOperations {
		return nil, fmt.Errorf("%w: %d operations; want at most %d", ErrTooLarge, len(ops), MaxOperations)
	}
	p := patcher{root: clone(object), left: MaxCopied}
	for i, o := range ops {
		if err := p.apply(o); err != nil {
			return nil, fmt.Errorf("operation %d (%.20s): %w", i, o.Op, err)
		}
	}
	out, ok := p.root.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%w: the result is no object", ErrDoesNotApply)
	}
	return out, nil
}

// patcher changes a document that is its own.
type patcher struct {
	root any
	left int // bytes that may still be copied
}

func (p *patcher) apply(o operation) error {
	path, err := pointer("path", o.Path)
	if err != nil {
		return err
	}
	switch o.Op {
	case "add", "replace", "test":
		v, err := o.value()
		if err != nil {
			return err
		}
		switch o.Op {
		case "add":
			return p.put(path, v, false)
		case "replace":
			return p.put(path, v, true)
		}
		have, err := p.get(path)
		if err == nil && !reflect.DeepEqual(have, v) {
			err = fmt.Errorf("%w: %s has another value", ErrDoesNotApply, *o.Path)
		}
		return err
	case "remove":
		return p.remove(path)
	case "move", "copy":
		return p.transfer(o, path)
	default:
		return fmt.Errorf("%w: want add, remove, replace, move, copy or test", ErrMalformed)
	}
}

func (o *operation) value() (any, error) {
	if o.Value == nil {
		return nil, fmt.Errorf("%w: value is missing", ErrMalformed)
	}
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(o.Value, &v); err != nil {
		return nil, fmt.Errorf("%w: value: %w", ErrMalformed, err)
	}
	return v, nil
}

func (p *patcher) transfer(o operation, path []string) error {
	from, err := pointer("from", o.From)
	if err != nil {
		return err
	}
	v, err := p.get(from)
	if err != nil {
		return err
	}
	if o.Op == "copy" {
		if p.left -= size(v); p.left < 0 {
			return fmt.Errorf("%w: copies of more than %d bytes", ErrTooLarge, MaxCopied)
		}
		return p.put(path, clone(v), false)
	}
	if strings.HasPrefix(*o.Path+"/", *o.From+"/") {
		if len(path) == len(from) {
			return nil
		}
		return fmt.Errorf("%w: %s is within %s", ErrMalformed, *o.Path, *o.From)
	}
	if err := p.remove(from); err != nil {
		return err
	}
	return p.put(path, v, false)
}

// pointer splits a JSON pointer (RFC 6901).
func pointer(field string, s *string) ([]string, error) {
	switch {
	case s == nil:
		return nil, fmt.Errorf("%w: %s is missing", ErrMalformed, field)
	case *s == "":
		return nil, nil
	case (*s)[0] != '/':
		return nil, fmt.Errorf("%w: %s is %.100q; want a JSON pointer, which begins with '/'", ErrMalformed, field, *s)
	}
	parts := strings.Split((*s)[1:], "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

func absent(path []string) error {
	return fmt.Errorf("%w: there is no %.200q", ErrDoesNotApply, "/"+strings.Join(path, "/"))
}

func (p *patcher) get(path []string) (any, error) {
	at := p.root
	for i, part := range path {
		switch v := at.(type) {
		case map[string]any:
			next, ok := v[part]
			if !ok {
				return nil, absent(path[:i+1])
			}
			at = next
		case []any:
			n, ok := index(part, len(v)-1)
			if !ok {
				return nil, absent(path[:i+1])
			}
			at = v[n]
		default:
			return nil, absent(path[:i+1])
		}
	}
	return at, nil
}

// index reads the index of an item, 0 to last.
func index(s string, last int) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && n <= last && strconv.Itoa(n) == s
}

// put adds a value, or replaces the one that has to be there.
func (p *patcher) put(path []string, v any, replace bool) error {
	if len(path) == 0 {
		p.root = v
		return nil
	}
	parent, last := path[:len(path)-1], path[len(path)-1]
	at, err := p.get(parent)
	if err != nil {
		return err
	}
	switch c := at.(type) {
	case map[string]any:
		if _, ok := c[last]; replace && !ok {
			return absent(path)
		}
		c[last] = v
		return nil
	case []any:
		if replace {
			n, ok := index(last, len(c)-1)
			if !ok {
				return absent(path)
			}
			c[n] = v
			return nil
		}
		n, ok := index(last, len(c))
		if last == "-" {
			n, ok = len(c), true
		}
		if !ok {
			return absent(path)
		}
		return p.put(parent, slices.Insert(c, n, v), len(parent) > 0)
	default:
		return absent(path)
	}
}

func (p *patcher) remove(path []string) error {
	if len(path) == 0 {
		return fmt.Errorf("%w: the whole object cannot be removed", ErrDoesNotApply)
	}
	parent, last := path[:len(path)-1], path[len(path)-1]
	at, err := p.get(parent)
	if err != nil {
		return err
	}
	switch c := at.(type) {
	case map[string]any:
		if _, ok := c[last]; !ok {
			return absent(path)
		}
		delete(c, last)
		return nil
	case []any:
		n, ok := index(last, len(c)-1)
		if !ok {
			return absent(path)
		}
		return p.put(parent, slices.Delete(c, n, n+1), len(parent) > 0)
	default:
		return absent(path)
	}
}

// clone copies a value with all that is in it.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = clone(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = clone(x)
		}
		return out
	default:
		return v
	}
}

// size is about what a value has in JSON, in bytes.
func size(v any) int {
	n := 8
	switch v := v.(type) {
	case map[string]any:
		for k := range maps.Keys(v) {
			n += len(k) + size(v[k])
		}
	case []any:
		for _, x := range v {
			n += size(x)
		}
	case string:
		n += len(v)
	}
	return n
}
