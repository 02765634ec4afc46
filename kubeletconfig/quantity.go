package kubeletconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodewright/nodewright/internal/quantity"
)

// wantQuantity describes the allowed quantities in a [Mistake].
var wantQuantity = strings.TrimPrefix(quantity.ErrTooCostly.Error(), "want ")

// quantityFields are the fields whose values are quantities or contain some.
var quantityFields = []string{
	"systemReserved", "kubeReserved", "reservedMemory", "containerLogMaxSize",
	"evictionHard", "evictionSoft", "evictionMinimumReclaim",
}

// costlyQuantities returns an error for each quantity that would take too long to parse. Call it
// before doc is decoded into a KubeletConfiguration.
func costlyQuantities(doc map[string]any) (errs []error) {
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case string:
			if !quantity.Cheap(v) && len(errs) < maxMistakes {
				errs = append(errs, Mistake{path, v, wantQuantity})
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(path+"."+oneLine(key), v[key])
			}
		case []any:
			for i := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), v[i])
			}
		}
	}
	for _, field := range quantityFields {
		walk(field, doc[field])
	}
	return errs
}

// Bytes parses a quantity, such as 10Mi, and returns its number of bytes. It fails if the number is
// not an integer.
func Bytes(s string) (int64, error) {
	q, err := quantity.Parse(s)
	if err != nil {
		return 0, err
	}
	n, ok := q.AsInt64()
	if !ok {
		return 0, errors.New("not a whole number of bytes")
	}
	return n, nil
}
