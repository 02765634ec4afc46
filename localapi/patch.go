package localapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/nodewright/nodewright/internal/patch"
)

// patch applies a patch of any type.
func (s *Server) patch(ctx context.Context, w http.ResponseWriter, r *http.Request, k *kind, q *query) error {
	data, media, err := body(r)
	if err != nil {
		return err
	}
	switch types.PatchType(media) {
	case types.ApplyYAMLPatchType:
		return s.apply(ctx, w, k, q, data)
	case types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType:
	default:
		return generic(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, fmt.Sprintf(
			"Content-Type is %.100q; want %s, %s, %s or %s", media, types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType))
	}
	if q.values.Has("force") {
		return apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("PatchOptions").GroupKind(), "", field.ErrorList{
			field.Forbidden(field.NewPath("force"), "may not be specified for non-apply patch"),
		})
	}
	raw, _, err := toJSON(data, typeJSON)
	if err != nil {
		return err
	}
	out, err := s.changed(ctx, k, q, func(old object) (object, error) {
		if old == nil {
			return nil, notFound(k, q.name)
		}
		o, unknown, err := patched(q.form, old, raw, types.PatchType(media))
		if err != nil {
			return nil, err
		}
		if err := validated(w, q, unknown); err != nil {
			return nil, err
		}
		if err := q.named(o); err != nil {
			return nil, err
		}
		return s.managed(k, q, old, q.form.stored(o))
	})
	if err != nil {
		return err
	}
	return s.answer(w, q, http.StatusOK, out)
}

// patched returns the result of a patch of old. k is the kind in the version of the
// patch; the result is in that version too.
func patched(k *kind, old object, raw []byte, media types.PatchType) (object, []string, error) {
	before, err := content(k.shown(old))
	if err != nil {
		return nil, nil, err
	}
	var after map[string]any
	var p map[string]any
	if media != types.JSONPatchType {
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &p); err != nil {
			return nil, nil, apierrors.NewBadRequest("the patch is no object: " + err.Error())
		}
	}
	switch media {
	case types.JSONPatchType:
		after, err = patch.JSON(before, raw)
	case types.MergePatchType:
		after, err = patch.Merge(before, raw)
	default:
		after, err = patch.Strategic(before, p, k.goType())
	}
	if err != nil {
		return nil, nil, err
	}
	o, unknown, err := typed(k, after)
	if apierrors.IsBadRequest(err) { // the result is not an object of the kind
		if media == types.StrategicMergePatchType { // the API server has no text for this
			if e := runtime.DefaultUnstructuredConverter.FromUnstructured(after, k.new()); e != nil {
				err = e
			}
		}
		return nil, nil, apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), fmt.Sprintf("%.1000s", raw), err.Error())})
	}
	return o, unknown, err
}

// content returns the JSON of an object.
func content(o object) (out map[string]any, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return out, kjson.UnmarshalCaseSensitivePreserveInts(text, &out)
}

// typed converts JSON to an object of a kind.
func typed(k *kind, content map[string]any) (object, []string, error) {
	text, err := json.Marshal(content)
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxBody {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object would have %d bytes; want at most %d", len(text), maxBody))
	}
	if _, _, err := toJSON(text, typeJSON); err != nil {
		return nil, nil, err
	}
	o := k.new()
	unknown, err := decodeJSON(text, o)
	return o, unknown, err
}

// apply answers a server-side apply.
func (s *Server) apply(ctx context.Context, w http.ResponseWriter, k *kind, q *query, data []byte) error {
	if q.manager == "" {
		return apierrors.NewBadRequest("PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch")
	}
	raw, twice, err := toJSON(data, typeYAML)
	if err != nil {
		return err
	}
	o := q.form.new()
	unknown, err := decodeJSON(raw, o) // checks the limits, and finds unknown fields
	if err != nil {
		return err
	}
	if err := validated(w, q, append(twice, unknown...)); err != nil {
		return err
	}
	if err := q.named(o); err != nil {
		return err
	}
	applied, err := appliedOf(q.form, raw)
	if err != nil {
		return err
	}
	force := flag(q.values, "force")
	code := http.StatusOK
	out, err := s.changed(ctx, k, q, func(old object) (object, error) {
		if old == nil {
			return nil, errNew
		}
		if v := o.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
			return nil, conflict(k, q.name, "the object has been modified; please apply your changes to the latest version and try again")
		}
		if uid := o.GetUID(); uid != "" && uid != old.GetUID() {
			return nil, conflict(k, q.name, "Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID())
		}
		next, err := s.managers.apply(k, q.subresource, old, applied, q.manager, force)
		if err != nil {
			return nil, err
		}
		fields := next.GetManagedFields()
		if err := s.prepareUpdate(k, q.subresource, next, old); err != nil {
			return nil, err
		}
		next.SetManagedFields(fields)
		return next, nil
	})
	if err == errNew { //nolint:errorlint // never wrapped
		if q.subresource != "" || k.fixed != "" {
			return notFound(k, q.name)
		}
		code = http.StatusCreated
		out, err = s.made(ctx, k, q, k.named(q, q.form.stored(o)), func(prepared object) (object, error) {
			live := map[string]any{"apiVersion": k.GroupVersion().String(), "kind": k.Kind, "metadata": map[string]any{"name": q.name}}
			owned, err := s.managers.merged(k, "", live, nil, applied, q.manager, force)
			if err != nil {
				return nil, err
			}
			prepared.SetManagedFields(owned.GetManagedFields())
			return prepared, nil
		})
	}
	if err != nil {
		return err
	}
	return s.answer(w, q, code, out)
}

// appliedOf returns an applied object with the field names of the stored version. It removes
// fields that the type does not have, and fields that have no owner.
func appliedOf(k *kind, raw []byte) (out map[string]any, err error) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &out); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	dropUnknown(out, k.goType())
	if meta, ok := out["metadata"].(map[string]any); ok {
		if fields, ok := meta["managedFields"].([]any); ok && len(fields) > 0 {
			return nil, apierrors.NewBadRequest("metadata.managedFields must be nil")
		}
		for _, name := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
			delete(meta, name)
		}
	}
	return k.storedFields(out), nil
}

// errNew means that an apply refers to an object that does not exist.
var errNew = fmt.Errorf("there is no such object")

// named returns a new object as the client sent it, without the fields that only the server
// writes.
func (k *kind) named(q *query, o object) object {
	o.SetNamespace(q.objectNamespace(k))
	o.SetName(q.name)
	o.SetManagedFields(nil)
	o.SetResourceVersion("")
	o.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return o
}
