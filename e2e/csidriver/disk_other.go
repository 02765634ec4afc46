//go:build !linux

package main

import (
	"context"
	"errors"
)

func (loops) growFS(string, int64) error { return errors.ErrUnsupported }
func (loops) freeze(string) error        { return errors.ErrUnsupported }
func (loops) thaw(string) error          { return errors.ErrUnsupported }

func copyTree(context.Context, string, string) error { return errors.ErrUnsupported }

func copyImage(context.Context, string, string, int64) error { return errors.ErrUnsupported }
