package localapi

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodewright/nodewright/internal/patch"
	"github.com/nodewright/nodewright/localapi/store"
)

// statusOf converts any error to the Status that clients get.
func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		s := api.Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		return &s
	}
	switch {
	case errors.Is(err, patch.ErrTooLarge), errors.Is(err, store.ErrTooLarge):
		return statusOf(apierrors.NewRequestEntityTooLargeError(err.Error()))
	case errors.Is(err, patch.ErrMalformed):
		return statusOf(apierrors.NewBadRequest(err.Error()))
	case errors.Is(err, patch.ErrDoesNotApply):
		return statusOf(generic(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error()))
	default:
		return statusOf(apierrors.NewInternalError(err))
	}
}

// generic returns an API error for which package errors has no function.
func generic(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// notAllowed rejects a verb. why gives the reason, or what to use instead.
func notAllowed(verb string, why string) error {
	return generic(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, fmt.Sprintf("%s is not supported: %s", verb, why))
}

func tooMany(what string) error { return apierrors.NewTooManyRequests(what, 1) }

func notFound(k *kind, name string) error { return apierrors.NewNotFound(k.groupResource(), name) }

func conflict(k *kind, name string, format string, args ...any) error {
	return apierrors.NewConflict(k.groupResource(), name, fmt.Errorf(format, args...))
}

func invalid(k *kind, name string, errs field.ErrorList) error {
	return apierrors.NewInvalid(k.GroupKind(), name, errs)
}

// statusReason returns the API server's reason for a status code.
func statusReason(code int) metav1.StatusReason {
	switch code {
	case http.StatusBadRequest:
		return metav1.StatusReasonBadRequest
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusNotFound:
		return metav1.StatusReasonNotFound
	case http.StatusMethodNotAllowed:
		return metav1.StatusReasonMethodNotAllowed
	case http.StatusUnprocessableEntity:
		return metav1.StatusReasonInvalid
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	case http.StatusServiceUnavailable:
		return metav1.StatusReasonServiceUnavailable
	default:
		return metav1.StatusReasonInternalError
	}
}
