package patch

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"
	kjson "sigs.k8s.io/json"
)

const (
	// MaxOperations limits the operations of a JSON patch, as in Kubernetes' API server.
	MaxOperations = 10_000
	// MaxCopied limits the bytes of JSON that all operations of a JSON patch copy together: each
	// line of a patch could double the size of an object.
	MaxCopied = 3 << 20
)

// Errors for patches that cannot be applied. They are wrapped.
var (
	// ErrMalformed means that the patch is invalid.
	ErrMalformed = errors.New("malformed patch")
	// ErrDoesNotApply means that the patch does not match the object: a path does not exist, or a
	// test fails.
	ErrDoesNotApply = errors.New("the patch does not apply")
	// ErrTooLarge means that the patch would cost too much.
	ErrTooLarge = errors.New("the patch is too large")
)

// JSON returns an object after a JSON patch. The error wraps ErrMalformed, ErrDoesNotApply or
// ErrTooLarge.
func JSON(object map[string]any, patch []byte) (map[string]any, error) {
	ops, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, fmt.Errorf("%w: want a list of operations: %w", ErrMalformed, err)
	}
	if len(ops) > MaxOperations {
		return nil, fmt.Errorf("%w: %d operations; want at most %d", ErrTooLarge, len(ops), MaxOperations)
	}
	return onText(object, func(text []byte) ([]byte, error) {
		opts := jsonpatch.NewApplyOptions()
		opts.AccumulatedCopySizeLimit = MaxCopied
		return ops.ApplyWithOptions(text, opts)
	})
}

// Merge returns an object after a merge patch. The error wraps ErrMalformed or ErrDoesNotApply.
func Merge(object map[string]any, patch []byte) (map[string]any, error) {
	return onText(object, func(text []byte) ([]byte, error) { return jsonpatch.MergePatch(text, patch) })
}

// onText applies a change to the JSON text of an object.
func onText(object map[string]any, change func(text []byte) ([]byte, error)) (out map[string]any, err error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	text, err = change(text)
	var copied *jsonpatch.AccumulatedCopySizeError
	switch {
	case errors.As(err, &copied):
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, jsonpatch.ErrBadJSONPatch):
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDoesNotApply, err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &out); err != nil || out == nil {
		return nil, fmt.Errorf("%w: the result is no object", ErrDoesNotApply)
	}
	return out, nil
}
