package correlate

// recent stores the values of the most recently used keys: at least most of them, if
// there have been as many, and at most twice as many.
type recent[K comparable, V any] struct {
	most       int
	young, old map[K]V // when young is full, it replaces old
}

func newRecent[K comparable, V any](most int) *recent[K, V] {
	return &recent[K, V]{most: most, young: map[K]V{}, old: map[K]V{}}
}

func (r *recent[K, V]) get(k K) (v V, ok bool) {
	if v, ok = r.young[k]; ok {
		return v, true
	}
	if v, ok = r.old[k]; ok {
		r.put(k, v)
	}
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	if _, ok := r.young[k]; !ok && len(r.young) >= r.most {
		r.young, r.old = map[K]V{}, r.young
	}
	r.young[k] = v
	delete(r.old, k)
}

// drop removes the values for which match returns true.
func (r *recent[K, V]) drop(match func(V) bool) {
	for _, m := range []map[K]V{r.young, r.old} {
		for k, v := range m {
			if match(v) {
				delete(m, k)
			}
		}
	}
}
