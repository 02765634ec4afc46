package patch

// Merge applies a merge patch (RFC 7386).
func Merge(object, patch map[string]any) map[string]any {
	out := make(map[string]any, len(object)+len(patch))
	for k, v := range object {
		out[k] = v
	}
	for k, v := range patch {
		switch v := v.(type) {
		case nil:
			delete(out, k)
		case map[string]any:
			have, _ := out[k].(map[string]any)
			out[k] = Merge(have, v)
		default:
			out[k] = v
		}
	}
	return out
}
