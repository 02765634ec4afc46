package podmeta

import (
	"maps"
	"strconv"
)

// LifeIn returns the number of a pod's life (podlife.Life) from the annotation key. It returns 0
// if there is no such annotation, or if its value is not a number.
func LifeIn(annotations map[string]string, key string) uint32 {
	n, err := strconv.ParseUint(annotations[key], 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// WithLife returns annotations with the number of a pod's life under key, and without key if the
// number is 0. The given map is not changed.
func WithLife(annotations map[string]string, key string, n uint32) map[string]string {
	if _, has := annotations[key]; !has && n == 0 {
		return annotations
	}
	out := maps.Clone(annotations)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, key)
	if n > 0 {
		out[key] = strconv.FormatUint(uint64(n), 10)
	}
	return out
}
